package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// Report says how each image of a folder was compared.
type Report struct {
	Rebuilt  []string // byte for byte with a new build: the compiler is the manifest's
	Proven   []string // as Rebuilt, when they were checked before
	Hashed   []string // by the hash of sources and flags: another compiler, or none
	Compiler string   // why images were hashed: what was found instead; "" if none were
}

// Check holds the images in dir against the spec, for opt.Targets. All differences
// are reported in one error.
func Check(ctx context.Context, s *Spec, dir string, opt Options) (*Report, error) {
	if err := opt.complete(); err != nil {
		return nil, err
	}
	if opt.Proven != "" && ownfile.Folder(opt.Proven) != nil {
		opt.Proven = "" // files that others could write there would prove nothing
	}
	m, err := readManifest(dir)
	if err != nil {
		return nil, fmt.Errorf("kernel images: %w", err)
	}
	units := s.units(opt.Targets)
	results := make([]result, len(units))
	err = each(ctx, opt, units, func(ctx context.Context, i int, u unit) error {
		results[i] = checkOne(ctx, s, u, dir, m.find(u.id()), opt)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	report := &Report{}
	var problems []error
	for i, r := range results {
		switch {
		case r.err != nil:
			problems = append(problems, r.err)
		case r.proven:
			report.Proven = append(report.Proven, units[i].id())
		case r.rebuilt:
			report.Rebuilt = append(report.Rebuilt, units[i].id())
		default:
			report.Hashed = append(report.Hashed, units[i].id())
			report.Compiler = r.compiler
		}
	}
	for _, img := range m.Images {
		if slices.ContainsFunc(opt.Targets, func(t Target) bool { return t.Arch == img.Arch }) &&
			!slices.ContainsFunc(units, func(u unit) bool { return u.id() == img.ID }) {
			problems = append(problems, fmt.Errorf("kernel image %s: not in the spec any more", img.ID))
		}
	}
	return report, errors.Join(problems...)
}

type result struct {
	rebuilt, proven bool
	compiler        string
	err             error
}

// proof is the file in opt.Proven that says that a build equalled the image: of the same sources, by the same
// programs in the same way. "": there is no such folder, or one of the programs is not found.
func (u unit) proof(sources string, img *Image, c compiler, opt Options) string {
	about := u.making(sources, img, c)
	if opt.Proven == "" || about == nil {
		return ""
	}
	return filepath.Join(opt.Proven, hash([]byte(strings.Join(append(about, img.SHA256), "\x00"))))
}

// proofs are those of an image's sources, and of what is left of them behind the preprocessor. The second is looked at where
// the first does not exist, because it takes a run of the preprocessor.
func (u unit) proofs(ctx context.Context, s *Spec, img *Image, c compiler, opt Options) (files []string, proven bool) {
	first := u.proof(img.Source, img, c, opt)
	if first == "" {
		return nil, false
	}
	if _, err := os.Stat(first); err == nil {
		return nil, true
	}
	files = []string{first}
	if text := u.expanded(ctx, c, s, opt.Headers); text != "" {
		files = append(files, u.proof(text, img, c, opt))
		_, err := os.Stat(files[1])
		proven = err == nil
	}
	return files, proven
}

// prove notes that a build equalled an image.
func prove(files []string) {
	for _, f := range files {
		_ = os.WriteFile(f, nil, 0o644) // without it the image is built again
	}
}

// making is all that decides the bytes of an image: its sources, or what stands for them, the programs and the way; nil where
// one of the programs is not found.
func (u unit) making(sources string, img *Image, c compiler) []string {
	about := append([]string{recipe, u.wrapper(), u.target.language(), sources, img.Layout, c.version}, img.Flags...)
	programs := []string{c.path}
	if u.target.Kind == HSA {
		programs = append(programs, linker)
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil
		}
		file, err := os.Stat(path)
		if err != nil {
			return nil
		}
		about = append(about, path, fmt.Sprint(file.Size(), file.ModTime().UnixNano()))
	}
	return about
}

func checkOne(ctx context.Context, s *Spec, u unit, dir string, img *Image, opt Options) (r result) {
	fail := func(format string, args ...any) result {
		r.err = fmt.Errorf("kernel image "+u.id()+": "+format, args...)
		return r
	}
	if img == nil {
		return fail("%w: not in the manifest: run make kernels", framework.ErrInvalid)
	}
	data, err := load(dir, *img)
	if err != nil {
		return fail("%w", err)
	}
	if got := hash(data); got != img.SHA256 {
		return fail("%w: sha256 %s, the manifest says %s", framework.ErrInvalid, got, img.SHA256)
	}
	if _, err := inspect(u.target.Kind, data); err != nil {
		return fail("%w", err)
	}
	from, err := s.origin(u.family, opt.Headers)
	if err != nil {
		return fail("%w", err)
	}
	if from.source != img.Source {
		return fail("%w: its sources have changed: run make kernels", framework.ErrInvalid)
	}
	if from.layout != img.Layout {
		return fail("%w: the manifest says that its arguments have layout %q, its sources say %q: run make kernels", framework.ErrInvalid, img.Layout, from.layout)
	}
	if flags := append(u.flags(), u.defines()...); !slices.Equal(flags, img.Flags) {
		return fail("%w: built with other flags: run make kernels", framework.ErrInvalid)
	}
	c, err := opt.Compilers.find(ctx, u.target)
	if err != nil || c.version != img.Compiler {
		r.compiler = c.version
		if err != nil {
			r.compiler = "none"
		}
		return r
	}
	proofs, proven := u.proofs(ctx, s, img, c, opt)
	if proven {
		prove(proofs)
		r.proven = true
		return r
	}
	again, err := compile(ctx, c, s, u, opt.Headers)
	if err != nil {
		return fail("%w", err)
	}
	if hash(again) != img.SHA256 {
		return fail("%w: a new build differs from it in %s", framework.ErrInvalid, difference(u.target.Kind, data, again))
	}
	prove(proofs)
	r.rebuilt = true
	return r
}
