// Package npd holds the configuration with which node-problem-detector asks plegd, one rule for each condition, and
// the test that runs it by that program's rules.
package npd
