package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkDockerfile returns the first error in the image that a Dockerfile describes.
func checkDockerfile(text string) string {
	c, err := parseDockerfile(text, map[string]string{"VERSION": "1.2.3", "REVISION": "abc", "BUILD_DATE": "2026-01-02T03:04:05Z"})
	switch {
	case err != nil:
		return err.Error()
	case strings.Join(c.Entrypoint, " ") != "/usr/bin/plegd" || strings.Join(c.Cmd, " ") != "run":
		return "it runs " + strings.Join(append(c.Entrypoint, c.Cmd...), " ")
	case c.User != "0:0":
		return "the user is " + c.User
	case c.Labels["org.opencontainers.image.version"] != "1.2.3" || c.Labels["org.opencontainers.image.revision"] != "abc":
		return "the version is " + c.Labels["org.opencontainers.image.version"]
	case c.Labels["org.opencontainers.image.created"] != "2026-01-02T03:04:05Z":
		return "created: " + c.Labels["org.opencontainers.image.created"]
	}
	if _, ok := c.ExposedPorts["20290/tcp"]; !ok {
		return "the port is not exposed"
	}
	return ""
}

func TestDockerfile(t *testing.T) {
	b, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	own := string(b)
	if wrong := checkDockerfile(own); wrong != "" {
		t.Error(wrong)
	}
	for _, m := range []struct{ old, mutant, found string }{
		{"USER 0:0", "USER 65534", "the user is"},
		{`CMD ["run"]`, `CMD ["status"]`, "it runs"},
		{"EXPOSE 20290/tcp", "EXPOSE 9090/tcp", "the port"},
		{`version="${VERSION}"`, `version=""`, "the version"},
		{"FROM scratch", "FROM alpine", "want scratch"},
		{"USER 0:0", "USER 0:0\nRUN id", "RUN"},
		{"COPY --from=build /rootfs/ /", "COPY --from=build /rootfs/usr /", "COPY"},
	} {
		if n := strings.Count(own, m.old); n != 1 {
			t.Errorf("the Dockerfile has %q %d times, want once", m.old, n)
		}
		if wrong := checkDockerfile(strings.Replace(own, m.old, m.mutant, 1)); !strings.Contains(wrong, m.found) {
			t.Errorf("with %q for %q what is found is %q, want %q", m.mutant, m.old, wrong, m.found)
		}
	}
}

// TestReproducible builds the image twice.
func TestReproducible(t *testing.T) {
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		if err := os.WriteFile(filepath.Join(dir, arch), []byte("program for "+arch), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var tars [2]string
	for i := range tars {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := build(options{
			dockerfile: "../../Dockerfile", binary: filepath.Join(dir, "ARCH"), arches: "amd64,arm64",
			name: "localhost/plegd:1", output: path, date: time.Unix(1700000000, 0).UTC(),
		}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tars[i] = string(b)
	}
	if tars[0] != tars[1] {
		t.Error("the same binaries make two images")
	}
}
