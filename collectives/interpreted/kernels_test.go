package interpreted_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	collectives "github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// entry is a kernel of a committed image.
type entry struct {
	image string // name of the image: sums-f32-sm_90
	name  string // symbol
	arch  string
	typed bool // the image is for a type
	dtype kernel.DataType
	bytes int // of its parameter
}

func (e *entry) String() string { return e.image + "/" + strings.TrimPrefix(e.name, "mscclpp_") }

// algorithm is what comes behind the collective in the symbol.
func (e *entry) algorithm() string {
	_, a, _ := strings.Cut(strings.TrimPrefix(e.name, "mscclpp_"), "_")
	return a
}

// collective is that of the symbol; false: messages, or a step of copies.
func (e *entry) collective() (collective.Kind, bool) {
	name, _, _ := strings.Cut(strings.TrimPrefix(e.name, "mscclpp_"), "_")
	k, ok := map[string]collective.Kind{
		"allreduce": collective.AllReduce, "allgather": collective.AllGather, "reducescatter": collective.ReduceScatter,
		"broadcast": collective.Broadcast, "reduce": collective.Reduce, "alltoall": collective.AllToAll, "barrier": collective.Barrier,
	}[name]
	return k, ok
}

var entryPattern = regexp.MustCompile(`\.visible \.entry (\w+)\(\s*\.param \.align \d+ \.b8 \w+\[(\d+)\]\s*\)`)

// ptx is the committed images for NVIDIA of an architecture, with their texts; "": of all.
func ptx(t testing.TB, arch string) (infos []framework.ImageInfo, texts map[string][]byte) {
	t.Helper()
	set, err := collectives.Images()
	if err != nil {
		t.Fatal(err)
	}
	texts = map[string][]byte{}
	for _, info := range set.Infos() {
		if !strings.HasPrefix(info.Arch, "sm_") || (arch != "" && info.Arch != arch) {
			continue
		}
		text, err := set.Read(info.ID)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
		texts[info.ID] = text
	}
	return infos, texts
}

// entries lists the kernels of all images of an architecture, in an order that does not change.
func entries(t testing.TB, arch string) ([]*entry, map[string][]byte) {
	t.Helper()
	infos, texts := ptx(t, arch)
	var list []*entry
	for _, info := range infos {
		for _, m := range entryPattern.FindAllStringSubmatch(string(texts[info.ID]), -1) {
			bytes, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			e := &entry{image: info.ID, name: m[1], arch: info.Arch, typed: info.Type != "", bytes: bytes, dtype: kernel.Float32}
			if e.typed {
				if e.dtype, err = kernel.ParseDataType(info.Type); err != nil {
					t.Fatal(err)
				}
			}
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int {
		return cmp.Or(strings.Compare(a.image, b.image), strings.Compare(a.name, b.name))
	})
	return list, texts
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
