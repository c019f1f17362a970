//go:build e2e

package lab

import (
	"os"
	"os/exec"
	"testing"
)

// TestDropping shows that a program is without the capabilities taken from it.
func TestDropping(t *testing.T) {
	RequireRoot(t)
	path := Dir(t) + "/forbidden"
	if err := os.WriteFile(path, []byte("secret"), 0o000); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cat", path).CombinedOutput(); err != nil {
		t.Errorf("root cannot read: %v %s", err, out)
	}
	argv := append(dropping(t, []string{"dac_override", "dac_read_search"}), "cat", path)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err == nil {
		t.Errorf("it can be read: %s", out)
	}
}
