# SPDX-License-Identifier: Apache-2.0
"""Everything that needs a real cluster: the cluster itself (`kind`), the demo, the stories."""
