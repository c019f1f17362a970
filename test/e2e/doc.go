// Package e2e tests plegd from outside, on real things: a containerd with real
// pods that is frozen, killed and starved, a real Prometheus that scrapes and
// alerts, a real systemd. What a test expects is what plegd promises its users:
// flags, exit codes, HTTP, metrics, the log.
//
//	go test -tags e2e -count=1 -timeout 15m -v ./test/e2e/
//
// It wants root and some of Debian's packages (install-deps.sh installs them).
// The environment may name a runtime, a binary and places for what is found:
//
//	PLEGD_BINARY                a plegd to test instead of one built from the tree
//	PLEGD_E2E_RUNTIME_ENDPOINT  a runtime's socket to use instead of a private
//	                            containerd; tests that must break the runtime skip
//	PLEGD_E2E_IMAGE             the image that pods run there
//	PLEGD_E2E_REPORT            a file for the table of measured values
//	PLEGD_E2E_ARTIFACTS         a directory for the logs of failed tests
package e2e
