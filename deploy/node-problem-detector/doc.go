// Package npd holds the configuration with which node-problem-detector asks
// plegd, and the test that runs it by that program's rules.
//
// plegd.json has the two conditions. plegd-events.json has an event for each
// reason and is written from the table of reasons.
package npd

//go:generate go test -count=1 -run ^TestEvents$ . -update
