package emulated

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode/cubintest"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// MachineCode makes containers NAME-CHIP.cubins in out, as an installation has them: of
// every image that the sources have for GPUs of the chip's kind. The code in them is none,
// but the library reads of it what the driver would, and the CPU images that were prepared
// in images stand for it. It returns the paths.
func MachineCode(t testing.TB, images, out string, chips []string, from ...Source) []string {
	t.Helper()
	var paths []string
	for _, chip := range chips {
		b := machinecode.Bundle{Chip: chip, Assembler: "emulated"}
		for _, src := range from {
			if src.Images == "" {
				src.Images = filepath.Dir(src.Spec)
			}
			set, err := image.Open(os.DirFS(src.Images))
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range set.Infos() {
				if !isPTX(info.Arch) || !src.wants(info.Type) || number(info.Arch) > number(chip) {
					continue
				}
				text, err := set.Read(info.ID)
				if err != nil {
					t.Fatal(err)
				}
				addCode(t, &b, images, info.ID, info.SHA256, text)
			}
		}
		paths = append(paths, write(t, &b, out))
	}
	return paths
}

// MachineCodeOf is MachineCode of one PTX text, for which Stand has made something stand.
func MachineCodeOf(t testing.TB, images, out, chip, sha256 string, ptx []byte) string {
	t.Helper()
	b := machinecode.Bundle{Chip: chip, Assembler: "emulated"}
	addCode(t, &b, images, "given", sha256, ptx)
	return write(t, &b, out)
}

func write(t testing.TB, b *machinecode.Bundle, out string) string {
	t.Helper()
	var data bytes.Buffer
	if err := b.Write(&data); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(out, "emulated-"+b.Chip+machinecode.Extension)
	if err := os.WriteFile(path, data.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// addCode adds what stands for the machine code of a text, and has the CPU image of the text
// stand for that.
func addCode(t testing.TB, b *machinecode.Bundle, images, id, sum string, ptx []byte) {
	t.Helper()
	code, use := cubintest.Object(ptx, number(b.Chip))
	if err := b.Add(id, sum, code, use); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", markOther} {
		from, to := name(ptx)+end, filepath.Join(images, name(code)+end)
		if _, err := os.Stat(filepath.Join(images, from)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Symlink(from, to); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
}

// number is 90 for sm_90.
func number(arch string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(arch, "sm_")) // of a manifest, or of a test
	return n
}
