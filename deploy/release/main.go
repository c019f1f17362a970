// Command release writes a software bill of materials (SPDX 2.3, JSON) of plegd's binaries:
// the modules that `go version -m` reads from them. The same binaries give the same bytes.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

func main() {
	out := flag.String("o", "", "`file` to write")
	version := flag.String("version", "", "plegd's version")
	created := flag.String("created", "", "`time` of the commit, RFC 3339")
	flag.Parse()
	if err := run(*out, *version, *created, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(out, version, created string, binaries []string) error {
	if _, err := time.Parse(time.RFC3339, created); err != nil {
		return fmt.Errorf("-created: %w", err)
	}
	if out == "" || version == "" || len(binaries) == 0 {
		return fmt.Errorf("want -o, -version and the binaries")
	}
	doc, err := describe(version, created, binaries)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(b, '\n'), 0o644)
}

// A document is the part of SPDX 2.3 that is needed.
type document struct {
	SPDXVersion   string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID           string     `json:"SPDXID"`
	Name         string     `json:"name"`
	Version      string     `json:"versionInfo"`
	FileName     string     `json:"packageFileName,omitempty"`
	Download     string     `json:"downloadLocation"`
	Analyzed     bool       `json:"filesAnalyzed"`
	Concluded    string     `json:"licenseConcluded"`
	Declared     string     `json:"licenseDeclared"`
	Copyright    string     `json:"copyrightText"`
	Checksums    []checksum `json:"checksums,omitempty"`
	ExternalRefs []external `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type external struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const none = "NOASSERTION"

// describe returns the document of the binaries, each with the modules that it is built from.
func describe(version, created string, binaries []string) (document, error) {
	doc := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "plegd-" + version,
		Creation: creation{Created: created, Creators: []string{"Tool: plegd-deploy-release"}},
	}
	seen, all := map[string]bool{}, sha256.New()
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return document{}, err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return document{}, err
		}
		sum := sha256.Sum256(b)
		all.Write(sum[:])
		// build/linux-amd64/plegd is plegd on linux-amd64.
		binary := pkg{
			ID: id(filepath.Base(path) + "-" + filepath.Base(filepath.Dir(path))), Name: filepath.Base(path), Version: version,
			FileName: filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path),
			Download: "https://github.com/plegd/plegd/releases", Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: none,
			Checksums:    []checksum{{"SHA256", hex.EncodeToString(sum[:])}},
			ExternalRefs: []external{purl(info.Main.Path, "v"+strings.TrimPrefix(version, "v"))},
		}
		doc.Packages = append(doc.Packages, binary)
		doc.Relationships = append(doc.Relationships, relationship{doc.ID, "DESCRIBES", binary.ID})
		modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
		for _, m := range append(modules, info.Deps...) {
			m = cmp.Or(m.Replace, m)
			p := pkg{
				ID: id(m.Path + "-" + m.Version), Name: m.Path, Version: m.Version, Download: none, Concluded: none, Declared: none, Copyright: none,
				ExternalRefs: []external{purl(m.Path, m.Version)},
			}
			if !seen[p.ID] {
				seen[p.ID] = true
				doc.Packages = append(doc.Packages, p)
			}
			doc.Relationships = append(doc.Relationships, relationship{binary.ID, "DEPENDS_ON", p.ID})
		}
	}
	doc.Namespace = "https://github.com/plegd/plegd/sbom/" + version + "/" + hex.EncodeToString(all.Sum(nil)[:16])
	return doc, nil
}

// id returns an identifier of SPDX: letters, digits, dots and dashes.
func id(name string) string {
	return "SPDXRef-" + regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(name, "-")
}

func purl(path, version string) external {
	return external{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")}
}
