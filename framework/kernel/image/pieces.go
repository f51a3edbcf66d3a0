package image

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
)

// Chips are those that machine code is made for if nothing else is said: each runs on its
// generation of GPUs, from this one on.
var Chips = []string{"sm_80", "sm_90", "sm_100", "sm_103", "sm_120"}

// Assembly says what NVIDIA's assembler makes of images.
type Assembly struct {
	Images    []string // folders of PTX, each with its manifest
	Except    []string // families that are left out
	Types     []string // images for a type are left out but for these; none: of all types
	Chips     []string // none: Chips
	Assembler string   // ptxas
	Store     string   // folder in which machine code is kept by all that decides its bytes; "": none
	Out       string   // path of the containers without chip and ending: DIR/NAME; "": none are written
	Jobs      int      // assemblers at once; 0: one a CPU
	Table     string   // name of the tables of registers; "": UseFile
	Record    bool     // writes the tables of registers instead of comparing with them
	Progress  func(done, all int, id string)
}

// piece is one image for one chip.
type piece struct {
	folder *folder
	image  *Image
	chip   string
	code   []byte
	use    map[string]machinecode.Use
	made   bool
}

// folder is a set of images with its table of registers.
type folder struct {
	dir      string
	manifest *Manifest
}

// pieces lists the work: for each chip the image that a GPU of this kind would load.
func (a *Assembly) pieces() ([]*piece, []*folder, error) {
	var out []*piece
	var folders []*folder
	for _, dir := range a.Images {
		m, err := readManifest(dir)
		if err != nil {
			return nil, nil, fmt.Errorf("kernel images: %w", err)
		}
		f := &folder{dir: dir, manifest: m}
		folders = append(folders, f)
		for _, chip := range a.Chips {
			best := map[string]*Image{}
			for i := range m.Images {
				img := &m.Images[i]
				least := chipNumber(img.Arch)
				if least == 0 || least > chipNumber(chip) || slices.Contains(a.Except, img.Family) ||
					len(a.Types) > 0 && img.Type != "" && !slices.Contains(a.Types, img.Type) {
					continue
				}
				key := img.Family + "\x00" + img.Type
				if other := best[key]; other == nil || chipNumber(other.Arch) < least {
					best[key] = img
				}
			}
			for _, key := range slices.Sorted(maps.Keys(best)) {
				out = append(out, &piece{folder: f, image: best[key], chip: chip})
			}
		}
	}
	return out, folders, nil
}

// chipNumber is 90 for sm_90 and sm_90a, 0 for what is not NVIDIA's.
func chipNumber(arch string) int {
	digits, ok := strings.CutPrefix(arch, "sm_")
	n, err := strconv.Atoi(strings.TrimRight(digits, "af"))
	if !ok || err != nil {
		return 0
	}
	return n
}

func (p *piece) id() string { return p.folder.manifest.Name + "/" + p.image.ID + " for " + p.chip }
