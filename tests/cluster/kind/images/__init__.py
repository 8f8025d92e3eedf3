# SPDX-License-Identifier: Apache-2.0
"""The images that go into the node image, each an archive in the artefact store."""
