// Package lab gives the end-to-end tests real things to break: the plegd binary, a Prometheus
// that scrapes it, and namespaces, cgroups and processes for the packages below it, which have
// a runtime with real pods, a systemd and a Kubernetes control plane. It knows plegd only from
// outside: its flags, its HTTP paths, its control socket and its log.
//
// Everything that a test makes lives below a temporary directory, in namespaces and
// cgroups of its own, and is gone when the test ends, however it ends. The lab
// signals no process that it has not started and reads no configuration of the machine.
//
// The package builds with the tag e2e only and needs root. A test binary that uses it must call Main from TestMain:
// the binary starts itself again as the first process of a containerd's namespaces. The environment may say:
//
//	PLEGD_BINARY           a plegd to test instead of one built from the tree
//	PLEGD_E2E_RUNTIME      containerd, crio, cri-dockerd or simulated
//	PLEGD_E2E_CONTAINERD   1.6, 1.7, 2.1 or 2.4; unset: the machine's own
//	PLEGD_E2E_CRIO, PLEGD_E2E_CRI_DOCKERD
//	                       their programs, which no package has
//	PLEGD_E2E_REPORT       a file for the measured values
//	PLEGD_E2E_ARTIFACTS    a directory for the logs of failed tests
package lab
