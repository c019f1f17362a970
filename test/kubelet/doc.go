// Package kubelet compares plegd's predictions with an unmodified kubelet.
//
// Each scenario has a node of its own (lab.Node): a real containerd or the simulated runtime, a kubelet built from
// the Go module proxy (../lab/kubernetes.sh), and plegd beside it on the same socket. The nodes share one unmodified
// control plane, whose watch records every write of a node's Ready condition. The scenario breaks the runtime or the
// kubelet; plegd's predictions are then compared with the kubelet's behaviour.
//
// `make e2e-kubelet` runs it and writes the table into docs/results/kubelet.md.
package kubelet
