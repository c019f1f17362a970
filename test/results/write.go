package results

import (
	"bytes"
	"fmt"
	"os"
	"slices"
)

// WritePage puts text between the two marks of a page: a line that names the command,
// and one that ends the results. Without a page it prints the text.
func WritePage(page, command, text string) error {
	if page == "" {
		_, err := os.Stdout.WriteString(text)
		return err
	}
	begin, end := fmt.Sprintf("<!-- begin results: %s -->\n", command), "<!-- end results -->\n"
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(old, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s: want the lines %q and %q", page, begin, end)
	}
	return os.WriteFile(page, slices.Concat(head, []byte(begin), []byte(text), []byte(end), tail), 0o644)
}
