// Package cluster runs plegd in a small Kubernetes: etcd, API server, controller manager, scheduler and kubelet,
// unmodified, on one node with a real containerd, and a real Prometheus, Alertmanager and vmagent beside it. vmagent
// finds the targets: Debian's Prometheus is built without the discovery of Kubernetes.
//
// The node is namespaces of the tests' own (lab.Node); the kernel settings that a kubelet writes are covered, so the
// machine keeps its own. There is no kube-proxy and no DNS: nothing in the tests uses a service's address.
// prometheus-operator is not there either: vmagent has the scrape configuration that the operator would make of the
// chart's PodMonitor.
//
// `make e2e-cluster` runs it, and writes plegd's predictions beside what the API
// server showed into docs/results/kubelet.md.
package cluster
