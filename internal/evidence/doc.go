// Package evidence is what the node says when the runtime does not. Each source
// is one file, has a time limit of its own and may fail alone.
//
// A source only reads: it starts no process, signals nobody, and leaves at most
// one connection a minute in the queue of a runtime that does not accept.
package evidence
