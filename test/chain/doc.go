// Package chain builds real wait chains of every kind that plegd follows, and compares
// the result of internal/chain with the actual one.
package chain
