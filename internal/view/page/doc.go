// Package page renders the status page.
package page
