package toylink

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
)

// images are the kernels for toys, which mscclpp-kernels has built of ../kernels/kernels.json.
type images struct {
	set     *image.Set
	kernels []framework.KernelInfo
}

// openImages reads the folder: the one that is named, else the one beside the program.
func openImages(dir string) (*images, error) {
	if dir == "" {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(filepath.Dir(program), "mscclpp-transport-toylink.kernels")
	}
	set, err := image.Open(os.DirFS(dir))
	if err != nil {
		return nil, err
	}
	return &images{set, list(set)}, nil
}

// list derives the kernels from the symbols: mscclpp_COLLECTIVE_ALGORITHM. There is no switch between toys.
func list(set *image.Set) []framework.KernelInfo {
	type found struct{ family, symbol string }
	types := map[found][]string{}
	var order []found
	for _, info := range set.Infos() {
		for _, symbol := range set.Symbols(info.ID) {
			f := found{info.Family, symbol}
			if types[f] == nil {
				order = append(order, f)
			}
			types[f] = append(types[f], info.Type)
		}
	}
	var out []framework.KernelInfo
	for _, f := range order {
		collective, algorithm, ok := kernellist.Names(f.symbol)
		if !ok || algorithm == "switch" {
			continue
		}
		k := kernellist.Collective(f.family, collective, algorithm, framework.KindMemory)
		if !slices.Contains(types[f], "") {
			k.Types = types[f]
		}
		out = append(out, k)
	}
	return out
}
