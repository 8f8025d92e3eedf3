# SPDX-License-Identifier: Apache-2.0
"""Each hole of the native check as a scenario, run with upstream's executor and with the guarded one.

    make faults                                     all, writes docs/faults.md; goes on where it stopped
    python -m tests.faults short                    a few of them, minutes; fails where ours deviates
    python -m tests.faults only NAME [--impl ours]  one, printed
    python -m tests.faults list                     the names

Real parts: a kube-apiserver with etcd behind a fault proxy, PostgreSQL, Airflow's own scheduler methods and
Execution API, the executor with its watchers. There is no kubelet: ``worker`` plays what runs in a pod.
"""
