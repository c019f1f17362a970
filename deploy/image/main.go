// Command image builds plegd's container image without a container engine: an OCI layout in a tar, for several
// architectures, from binaries that are there. The image's entrypoint and labels come from the last stage of the
// Dockerfile, so that there is one source for both ways to build it.
//
// It is a module of its own: plegd does not depend on its imports.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type options struct {
	dockerfile, binary, arches, name, output string
	args                                     map[string]string
	date                                     time.Time
}

func main() {
	var o options
	var version, revision, created string
	flag.StringVar(&o.dockerfile, "dockerfile", "Dockerfile", "what the image is, in its last stage")
	flag.StringVar(&o.binary, "binary", "build/linux-ARCH/plegd", "the binaries; ARCH stands for the architecture")
	flag.StringVar(&o.arches, "arch", "amd64,arm64", "the architectures, with commas between")
	flag.StringVar(&o.name, "name", "localhost/plegd:dev", "the image's name in the tar")
	flag.StringVar(&o.output, "o", "plegd.oci.tar", "the tar")
	flag.StringVar(&version, "version", "", "the Dockerfile's VERSION")
	flag.StringVar(&revision, "revision", "", "the Dockerfile's REVISION")
	flag.StringVar(&created, "created", "1970-01-01T00:00:00Z", "the Dockerfile's BUILD_DATE, and the time of everything in the image")
	flag.Parse()
	o.args = map[string]string{"VERSION": version, "REVISION": revision, "BUILD_DATE": created}
	var err error
	if o.date, err = time.Parse(time.RFC3339, created); err == nil {
		err = build(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build writes the image into one tar.
func build(o options) error {
	text, err := os.ReadFile(o.dockerfile)
	if err != nil {
		return err
	}
	config, err := parseDockerfile(string(text), o.args)
	if err != nil {
		return fmt.Errorf("read %s: %w", o.dockerfile, err)
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for arch := range strings.SplitSeq(o.arches, ",") {
		img, err := image(strings.ReplaceAll(o.binary, "ARCH", arch), arch, config, o.date)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp("", "plegd-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(o.name, ":")
	err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          o.name, // containerd's and docker's
		"org.opencontainers.image.ref.name": tag,    // podman's and skopeo's
	}))
	if err != nil {
		return err
	}
	return pack(dir, o.output, o.date)
}

// image is one architecture's.
func image(binary, arch string, config v1.Config, date time.Time) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("%w; make build-all makes it", err)
	}
	content, err := rootfs(program, date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: date}, CreatedBy: "COPY --from=build /rootfs/ /",
	}}); err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config, file.Created = arch, "linux", config, v1.Time{Time: date}
	return mutate.ConfigFile(img, file)
}

// rootfs is what the Dockerfile's build stage leaves in /rootfs.
func rootfs(program []byte, date time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range []string{"run/", "run/plegd/", "usr/", "usr/bin/", "var/", "var/lib/", "var/lib/plegd/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: date}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "usr/bin/plegd", Mode: 0o755, Size: int64(len(program)), ModTime: date}); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	err := w.Close()
	return buf.Bytes(), err
}

// pack writes a directory into a tar, in the order of the names.
func pack(dir, output string, date time.Time) (err error) {
	f, err := os.Create(output)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b)), ModTime: date}); err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
	return errors.Join(err, w.Close())
}
