# SPDX-License-Identifier: Apache-2.0
"""The launch guard: no worker pod is launched for work that has moved on.

An entry file: it parses on Python 3.8 and imports nothing. The package's façade is ``executor``.
"""
