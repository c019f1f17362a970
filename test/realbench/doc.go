// Package realbench measures the cost of plegd and its delay in stating a fault, on a real
// containerd with real pods: beside a plain client that makes the same two lists and, where
// PLEGD_BENCH_NPD names a directory with node-problem-detector, health-checker and crictl, beside
// these, and where PLEGD_BENCH_KUBELET names a kubelet, beside it, with its static pods. It changes nothing but the containerd and the pods that it made.
package realbench
