package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Set is a folder of images, ready to be read.
type Set struct {
	dir      fs.FS
	manifest *Manifest
}

// Open reads the manifest of a folder: os.DirFS beside a program, or an embedded
// one. ErrUnavailable: there is none.
func Open(dir fs.FS) (*Set, error) {
	data, err := fs.ReadFile(dir, ManifestFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: kernel images: %w: expected the folder that mscclpp-kernels build --out (here: make kernels) fills", framework.ErrUnavailable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("kernel images: %w", err)
	}
	m, err := parseManifest(data)
	if err != nil {
		return nil, fmt.Errorf("kernel images: %s: %w", ManifestFile, err)
	}
	return &Set{dir: dir, manifest: m}, nil
}

// Infos lists the images.
func (s *Set) Infos() []framework.ImageInfo {
	out := make([]framework.ImageInfo, len(s.manifest.Images))
	for i, img := range s.manifest.Images {
		out[i] = img.Info(s.manifest.ABI)
	}
	return out
}

// Symbols lists the entry points of an image, nil if there is no such image.
func (s *Set) Symbols(id string) []string {
	if img := s.manifest.find(id); img != nil {
		return img.Symbols
	}
	return nil
}

// MaxThreads is the largest block that the kernels of an image were compiled for, 0
// if that was not limited.
func (s *Set) MaxThreads(id string) int {
	img := s.manifest.find(id)
	if img == nil {
		return 0
	}
	for _, flag := range img.Flags {
		if text, ok := strings.CutPrefix(flag, maxThreadsFlag); ok {
			if n, err := strconv.Atoi(text); err == nil {
				return n
			}
		}
	}
	return 0
}

const maxThreadsFlag = "-DMSCCLPP_MAX_THREADS="

// Read returns the bytes of an image as a device loads them. ErrInvalid: no such
// id. ErrUnavailable: its file is missing or not the one that the manifest names.
func (s *Set) Read(id string) ([]byte, error) {
	img := s.manifest.find(id)
	if img == nil {
		return nil, fmt.Errorf("%w: kernel image %q: not in the manifest", framework.ErrInvalid, id)
	}
	data, err := fs.ReadFile(s.dir, img.File)
	if err != nil {
		return nil, fmt.Errorf("%w: kernel image %q: %w: build it with mscclpp-kernels (here: make kernels)", framework.ErrUnavailable, id, err)
	}
	if data, err = unpack(img.File, data); err != nil {
		return nil, fmt.Errorf("%w: kernel image %q: %w", framework.ErrUnavailable, id, err)
	}
	if got := hash(data); got != img.SHA256 {
		return nil, fmt.Errorf("%w: kernel image %q: sha256 %s, the manifest says %s: build it anew", framework.ErrUnavailable, id, got, img.SHA256)
	}
	return data, nil
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
