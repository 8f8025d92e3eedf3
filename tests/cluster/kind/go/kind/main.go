// SPDX-License-Identifier: Apache-2.0

// Command kind is the stock tool, pinned by this module.
package main

import "sigs.k8s.io/kind/cmd/kind/app"

func main() { app.Main() }
