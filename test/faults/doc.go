// Package faults injects faults into a real runtime with real pods, and checks plegd's verdict on each: the primary
// reason and its delay, the evidence, the culprit and the next step, and the recovery without a restart of plegd.
// Each fault is a row of the table faults (run_test.go); `plegd simulate` injects those that a real runtime cannot
// show.
//
//	make e2e-faults [CONTAINERD=2.4] [RUNS=10] [LANES=2] [CASES='SIGSTOP|list above']
//
// TestFaults makes the rows, TestPairs each critical row beside each standing warning. TestHarmless makes what only
// looks like a fault. TestSteps and TestServiceSteps paste the commands of the reasons' steps while their faults
// stand; TestRestart restarts the runtime where that must help: `make e2e-advice`. `make e2e-casebook` makes the rows
// that are public incidents.
//
// TestChaos, `make soak-chaos [DURATION=30m] [SEED=1]`, makes rows at random, several at once, kills plegd now and
// then, and compares the faults with the recorded incidents. Of the faults that last longer than 10 s, 98 % must be
// in an incident by their exact reason, named within 3 s (8 s for what Status shows) and gone 5 s after their end; no
// incident may lie outside a fault; and plegd's memory, goroutines and descriptors must be where they began.
//
// Beside the variables of package lab the environment may say:
//
//	RUNS                   how often each fault is made; 1
//	LANES                  how many are made at once, each on a runtime of its own; 1
//	HOLD                   the seconds for which each fault lasts once it is named, at least; the
//	                       primary reason may change once after the first 10 s
//	CASES                  a regular expression for names; "book": the public incidents
//	PLEGD_FAULTS_RESULTS   a directory for the results: `make results` writes those of
//	                       all runtimes into docs/results/faults.md
//	PLEGD_FAULTS_AT_LEAST  the share of right runs that is enough, 0 to 1
//	PLEGD_E2E_CRICTL       crictl, for the steps that need it
//	PLEGD_RECORD_INCIDENTS a folder for plegd's incidents: `make record-incidents`
package faults
