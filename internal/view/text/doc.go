// Package text writes the status and the incidents for a terminal.
package text
