// SPDX-License-Identifier: Apache-2.0

// Command etcd is the stock server under an own main: the module cannot be
// installed directly, since its go.mod has replace directives.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
