// Package view puts what plegd knows into the words and numbers that people
// read. Its subpackages text and page lay them out for a terminal and a browser.
package view
