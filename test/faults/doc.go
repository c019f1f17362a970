// Package faults is the fault matrix: each fault is made for real, on a real
// containerd with real pods, again and again, and plegd must name it rightly
// every time, name nothing else on the way, and be healthy again after it
// without a restart of its own. What containerd cannot be made to do is done by
// `plegd simulate`; the table says so.
//
//	make e2e-faults [RUNS=10] [LANES=2] [E2EFLAGS='-run TestFaults/SIGSTOP']
//
// TestShapes is the same of what containerd does not show: a process that
// behaves as CRI-O does, dockerd behind cri-dockerd, single calls that hang or
// fail, a kubelet that stalls. TestKernel is the same of what the kernel makes the
// runtime wait for: memory, a CPU, a frozen file system, a FUSE server, a file
// lock. TestLatchedNetwork is what is no fault by any
// call, and must be called none.
//
// TestSteps and TestServiceSteps paste the commands of the reasons' steps while their
// faults stand, the second with the runtime as a service of systemd: `make e2e-advice`.
// TestEveryStep looks whether each command of each page is tried by one of them; the
// list untried says why the others are not.
//
// TestCaseBook and what begins so make public incidents again, for
// docs/results/casebook.md: `make e2e-casebook`.
//
// It wants what test/e2e wants. The environment may say:
//
//	RUNS                how often each fault is made; 1
//	LANES               how many faults are made at once, each on a containerd
//	                    of its own; 1. With 2 the times are those of a busier
//	                    machine
//	PLEGD_E2E_RUNTIME   containerd, crio, cri-dockerd or simulated: only the
//	                    faults that are made on it. Unset: containerd and the
//	                    stand-ins
//	PLEGD_E2E_CONTAINERD
//	                    1.6, 1.7, 2.1 or 2.4; unset: the machine's own
//	PLEGD_FAULTS_RESULTS
//	                    a directory for the results; `make results`
//	                    writes those of all runtimes into docs/results/faults.md
//	PLEGD_E2E_CRICTL    crictl, for the steps that need it; unset: they are logged as
//	                    not tried
//	CASES               a regular expression for the cases of the case book ("1",
//	                    "1b"), or sweep, cost or privilege
//	PLEGD_CASEBOOK_RESULTS
//	                    a directory for what the case book's runs showed
//	PLEGD_RECORD_INCIDENTS
//	                    a folder for what plegd recorded of each fault: `make
//	                    record-incidents` keeps them as cases for the classifier
package faults
