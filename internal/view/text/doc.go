// Package text writes documents for a terminal. Nothing in its output can command the
// terminal: view has escaped all text from outside.
package text
