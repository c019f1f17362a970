// Package e2e tests plegd from outside, beside a real containerd with real pods: what
// it reports of pods, a runtime frozen until the kubelet's rules fail, starts and
// restarts. Package faults names faults; the commands' tests are in cmd/plegd.
//
//	make e2e [E2EFLAGS='-run TestPodsTruth']
//
// It needs root and some of Debian's packages, which install-deps.sh installs. Package
// lab lists the environment variables.
package e2e
