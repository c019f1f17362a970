// Package waiting starts processes that wait for each other in all the ways in which the processes of a node do.
package waiting
