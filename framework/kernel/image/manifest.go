package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
)

// ManifestFile is the name of a folder's manifest.
const ManifestFile = "manifest.json"

// Manifest describes a folder of images.
type Manifest struct {
	Name   string  `json:"name"`
	ABI    uint32  `json:"abi"`
	Images []Image `json:"images"`
}

// Image is one entry of a manifest.
type Image struct {
	ID       string   `json:"id"`
	Family   string   `json:"family"`
	Type     string   `json:"type,omitempty"`
	Arch     string   `json:"arch"`
	File     string   `json:"file"`
	Bytes    uint64   `json:"bytes"`  // of the image itself, not compressed
	SHA256   string   `json:"sha256"` // likewise
	Symbols  []string `json:"symbols"`
	Source   string   `json:"source"`           // hash of all sources and headers of ours
	Layout   string   `json:"layout,omitempty"` // kernel.Layout with those that define arguments
	Compiler string   `json:"compiler"`         // first line of its version
	Flags    []string `json:"flags"`
}

// Info is the image as a transport's description lists it.
func (i Image) Info(abi uint32) framework.ImageInfo {
	return framework.ImageInfo{ID: i.ID, Arch: i.Arch, Family: i.Family, Type: i.Type, ABI: abi, Layout: i.Layout, SHA256: i.SHA256, Bytes: i.Bytes}
}

func parseManifest(data []byte) (*Manifest, error) {
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	if m.ABI != kernel.ABI {
		return nil, fmt.Errorf("%w: images of ABI %d, expected %d: build them anew", framework.ErrUnavailable, m.ABI, kernel.ABI)
	}
	seen := map[string]bool{}
	for _, i := range m.Images {
		if i.ID == "" || i.File == "" || filepath.Base(i.File) != i.File || seen[i.ID] {
			return nil, fmt.Errorf("%w: image %q in file %q: expected unique ids and plain file names", framework.ErrInvalid, i.ID, i.File)
		}
		seen[i.ID] = true
	}
	return m, nil
}

func readManifest(dir string) (*Manifest, error) {
	data, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	return m, nil
}

func (m *Manifest) find(id string) *Image {
	for i := range m.Images {
		if m.Images[i].ID == id {
			return &m.Images[i]
		}
	}
	return nil
}

func (m *Manifest) write(dir string) error {
	slices.SortFunc(m.Images, func(a, b Image) int { return cmp.Compare(a.ID, b.ID) })
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Bytes(filepath.Join(dir, ManifestFile), append(data, '\n'))
}
