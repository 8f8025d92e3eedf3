# SPDX-License-Identifier: Apache-2.0
"""What the cluster is made of: the one place where its versions and image names stand.

The versions of programs built from Go modules are pinned by the ``go.mod`` files beside this
module; what is repeated here is what the names of images and checks need.
"""

CLUSTER = "steadfast"

KUBERNETES = "v1.34.4"
KIND_AT_LEAST = (0, 30)
HELM_AT_LEAST = (3, 19)
DEBIAN_SUITE = "bookworm"

# The image that the notes of kind v0.33.0 name for this minor version of Kubernetes.
STOCK_NODE_IMAGE = (
    "docker.io/kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d"
)

# Names that kubeadm asks for. The tag is what counts to it, not what is inside:
# the versions inside are those of go/kubernetes/go.mod and go/etcd/go.mod.
KUBE_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
KUBE_IMAGES = tuple(f"registry.k8s.io/{name}:{KUBERNETES}" for name in KUBE_PROGRAMS)
ETCD_IMAGE = "registry.k8s.io/etcd:3.6.5-0"
COREDNS_IMAGE = "registry.k8s.io/coredns/coredns:v1.12.1"
PAUSE_IMAGE = "registry.k8s.io/pause:3.10.1"

# Names that the chart and the tests ask for.
AIRFLOW_IMAGE = "docker.io/apache/airflow:3.3.2"
POSTGRES_IMAGE = "docker.io/library/postgres:15"
PROMETHEUS_IMAGE = "docker.io/prom/prometheus:v2.42.0"
