package emulated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// Source names kernels that exist as PTX, and what they were compiled from.
type Source struct {
	Spec   string   // kernels.json
	Images string   // folder of the PTX with its manifest; "": that of Spec
	Types  []string // element types to prepare; none: all
	AMD    bool     // the images are code objects of AMD's, not PTX
}

// Images prepares images for a test and returns the folder for EnvImages. It skips
// the test where there is no compiler.
func Images(t testing.TB, from ...Source) string {
	t.Helper()
	dir := t.TempDir()
	err := Prepare(t.Context(), dir, from...)
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no kernel images: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Prepare compiles the kernels for the CPU, and puts them into dir under the names
// by which the library finds the image that stands for a PTX text. Where the PTX was
// made of other sources, as while kernels are worked on, a mark beside the image says
// so, and the library believes the image: what it lacks is an error when it is asked
// for, and sizes of arguments are not compared. ErrUnavailable: there is no C++
// compiler.
func Prepare(ctx context.Context, dir string, from ...Source) error {
	for _, src := range from {
		for _, typ := range src.Types {
			if _, err := kernel.ParseDataType(typ); err != nil {
				return fmt.Errorf("emulated images: %w", err)
			}
		}
		if src.Images == "" {
			src.Images = filepath.Dir(src.Spec)
		}
		if err := prepare(ctx, dir, src); err != nil {
			return fmt.Errorf("emulated images: %s: %w", src.Spec, err)
		}
	}
	return nil
}

func prepare(ctx context.Context, dir string, src Source) error {
	ptx, err := image.Open(os.DirFS(src.Images))
	if err != nil {
		return err
	}
	cache, err := folder("images")
	if err != nil {
		return err
	}
	spec, err := image.ReadSpec(src.Spec)
	if err != nil {
		return err
	}
	cache = filepath.Join(cache, spec.Name)
	if src.AMD {
		cache += "-amd" // of other families
	}
	unlock, err := lock(cache + ".lock")
	if err != nil {
		return err
	}
	defer unlock() // after the copies: another tree may build the same spec
	built, err := build(ctx, spec, cache, src)
	if err != nil {
		return err
	}
	theirs, err := origins(src.Images)
	if err != nil {
		return err
	}
	ours, err := origins(cache)
	if err != nil {
		return err
	}
	for _, info := range ptx.Infos() {
		if !src.stands(info.Arch) || !src.wants(info.Type) {
			continue
		}
		text, err := ptx.Read(info.ID)
		if err != nil {
			return err
		}
		cpu, id, err := counterpart(built, info)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name(text))
		if err := os.WriteFile(to, cpu, 0o644); err != nil {
			return err
		}
		if theirs[info.ID] == ours[id] {
			err = os.RemoveAll(to + markOther)
		} else {
			err = os.WriteFile(to+markOther, nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// markOther ends the name of a file beside an image whose sources are not those of
// the PTX.
const markOther = ".other"

// origins returns the hashes of the sources of all images in a folder.
func origins(dir string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, image.ManifestFile))
	if err != nil {
		return nil, err
	}
	var m image.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, i := range m.Images {
		out[i.ID] = i.Source
	}
	return out, nil
}

func isPTX(arch string) bool { return strings.HasPrefix(arch, "sm_") }

// stands says whether images for the CPU are to stand for those of an architecture.
func (s Source) stands(arch string) bool {
	if s.AMD {
		return strings.HasPrefix(arch, "gfx")
	}
	return isPTX(arch)
}

func (s Source) wants(typ string) bool {
	return typ == "" || len(s.Types) == 0 || slices.Contains(s.Types, typ)
}

// build compiles the families of a spec for this processor, those too that are for
// GPUs only.
func build(ctx context.Context, spec *image.Spec, dir string, src Source) (*image.Set, error) {
	types := src.Types
	spec.Families = slices.DeleteFunc(spec.Families, func(f image.Family) bool { // of other vendors
		return len(f.Targets) > 0 && !slices.ContainsFunc(f.Targets, src.stands)
	})
	for i := range spec.Families {
		f := &spec.Families[i]
		f.Targets, f.Only = nil, nil
		f.Defines = maps.Clone(f.Defines)
		if f.Defines == nil {
			f.Defines = map[string]string{}
		}
		f.Defines["MSCCLPP_STANDS_FOR_GPU"] = "1" // kernels that are for GPUs alone
		if len(f.Types) > 0 && len(types) > 0 {
			all := slices.Equal(f.Types, []string{"all"})
			f.Types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return !all && !slices.Contains(f.Types, t) })
			if len(f.Types) == 0 {
				return nil, fmt.Errorf("%w: family %s has none of the types %v", framework.ErrInvalid, f.Name, types)
			}
		}
	}
	store, err := ownfile.Cache("built")
	if err != nil {
		return nil, err
	}
	targets, err := src.processor()
	if err != nil {
		return nil, err
	}
	if _, err := image.Build(ctx, spec, dir, image.Options{Targets: targets, Jobs: 2, Store: store}); err != nil {
		return nil, err
	}
	return image.Open(os.DirFS(dir))
}

// processor returns what to compile for. The reductions that AMD's GPUs have in one image are compiled without AVX-512: g++ 12
// ends in those of u8 with an instruction of its own making, a masked maximum of 16 bytes, that its tables do not have.
func (s Source) processor() ([]image.Target, error) {
	targets, err := image.ParseTargets("native")
	if err == nil && s.AMD && targets[0].Arch == "x86-64-v4" {
		return image.ParseTargets("x86-64-v3")
	}
	return targets, err
}

// counterpart finds the image of the same family and type.
func counterpart(built *image.Set, ptx framework.ImageInfo) (data []byte, id string, err error) {
	for _, info := range built.Infos() {
		if info.Family == ptx.Family && info.Type == ptx.Type {
			data, err = built.Read(info.ID)
			return data, info.ID, err
		}
	}
	return nil, "", fmt.Errorf("%w: PTX %s is of family %q, type %q, which the spec has not", framework.ErrInvalid, ptx.ID, ptx.Family, ptx.Type)
}

// name is the file name that the library looks for.
func name(ptx []byte) string {
	h := fnv.New64a()
	h.Write(ptx)
	return fmt.Sprintf("%016x.so", h.Sum64())
}

// Stand makes C++ stand for a PTX text: it defines, with C linkage, a function
// void NAME(const void* arguments, const void* shape) for each entry point. dir is
// the folder for EnvImages.
func Stand(t testing.TB, dir string, ptx []byte, source string) {
	t.Helper()
	cxx, err := compiler()
	if err != nil {
		t.Skipf("no kernel images: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), cxx, "-std=c++17", "-O1", "-fPIC", "-shared", "-x", "c++", "-", "-o", filepath.Join(dir, name(ptx)))
	cmd.Stdin = strings.NewReader(source)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cxx, err, bytes.TrimSpace(text))
	}
}

// Tree lists the kernels for GPUs of a source tree.
func Tree(root string) []Source {
	in := func(path string) string { return filepath.Join(root, filepath.FromSlash(path)) }
	return []Source{
		{Spec: in("collectives/image/kernels.json")},
		{Spec: in("collectives/internal/scaling/kernels/kernels.json"), Images: in("collectives/internal/scaling/image")},
		{Spec: in("framework/kernel/actor/kernels/kernels.json"), Images: in("framework/kernel/actor/image")},
	}
}
