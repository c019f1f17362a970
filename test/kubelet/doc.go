// Package kubelet compares plegd's predictions with an unmodified kubelet.
//
// Each scenario has a node of its own (lab.Node): a real containerd or the
// simulated runtime, a kubelet built from the Go module proxy (../lab/kubernetes.sh), plegd
// beside it on the same socket, and an API server that records every write of the
// node's Ready condition. The scenario breaks the runtime or the kubelet; what
// plegd predicted is then compared with what the kubelet did.
//
// `make e2e-kubelet` runs it and writes the table into docs/results/kubelet.md.
package kubelet
