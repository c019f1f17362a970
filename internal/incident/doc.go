// Package incident remembers what went wrong: it opens an incident when the
// verdict leaves healthy, keeps the whole story with the facts that each
// verdict was made from, closes it when all is well, and stores each in a JSON
// file of its own.
//
// It is told of verdicts and relists and never asks for any; what it does when
// told takes no file, no sync and no wait. Files are written by one goroutine,
// which a dead disk may hold up without holding up anybody else. Everything it
// keeps is bounded: incidents in number, size and rate, moments in each, what
// waits to be written.
package incident
