# SPDX-License-Identifier: Apache-2.0
"""Two real schedulers under faults, with everything real but the kubelet, whose part a player takes."""
