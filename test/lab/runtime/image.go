//go:build e2e

package runtime

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// PauseImage is the reference of the image with test/images/pause.
const PauseImage = "localhost/plegd-e2e-pause:1"

var imageTar = sync.OnceValues(func() (string, error) {
	bin, err := lab.GoBuild("test/images/pause")
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(bin)
	if err != nil {
		return "", err
	}
	b, err := packImage(PauseImage, "/pause", program)
	if err != nil {
		return "", err
	}
	return bin + ".tar", os.WriteFile(bin+".tar", b, 0o644)
})

// ImageTar returns the path of the pause image as an OCI layout in a tar, building it
// the first time. No registry is asked. The program pause is beside it.
func ImageTar(t testing.TB) string {
	t.Helper()
	path, err := imageTar()
	lab.Must(t, err)
	return path
}

// packImage packs one static program as an OCI image layout in a tar, as `ctr images import` takes it.
func packImage(reference, entrypoint string, program []byte) ([]byte, error) {
	layer, err := packTar([]tarFile{{name: filepath.Base(entrypoint), mode: 0o755, data: program}})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{entrypoint}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	descriptor := func(mediaType string, b []byte) map[string]any {
		return map[string]any{"mediaType": "application/vnd.oci.image." + mediaType, "digest": digest(b), "size": len(b)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor("config.v1+json", config),
		"layers": []any{descriptor("layer.v1.tar", layer)},
	})
	if err != nil {
		return nil, err
	}
	entry := descriptor("manifest.v1+json", manifest)
	entry["annotations"] = map[string]string{"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
	entry["platform"] = map[string]string{"architecture": runtime.GOARCH, "os": "linux"}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{entry},
	})
	if err != nil {
		return nil, err
	}
	files := []tarFile{
		{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, data: index},
	}
	for _, blob := range [][]byte{config, manifest, layer} {
		files = append(files, tarFile{name: "blobs/sha256/" + hexSum(blob), mode: 0o644, data: blob})
	}
	return packTar(files)
}

type tarFile struct {
	name string
	mode int64
	data []byte
}

func packTar(files []tarFile) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func digest(b []byte) string { return "sha256:" + hexSum(b) }

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
