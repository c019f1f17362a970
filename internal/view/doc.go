// Package view renders snapshots and incidents as documents: sections of lines in words.
// Its subpackages text and page lay a document out for a terminal and a browser. It reads
// plain values only and judges nothing.
package view
