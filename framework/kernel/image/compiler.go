package image

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// Compilers names the programs to use. Empty fields are found: $CXX, g++, clang++ for
// the CPU; clang++-19, clang++ for GPUs.
type Compilers struct {
	CPU string
	GPU string
}

// compiler is a program that was found.
type compiler struct {
	path    string
	version string
}

func (c Compilers) find(ctx context.Context, t Target) (compiler, error) {
	var names []string
	kind := t.Kind
	what, hint := "a C++17 compiler", "g++ or clang++"
	switch kind {
	case Own:
		what, hint = "the compiler for "+t.Arch, t.own.Compiler
		names = []string{t.own.Compiler}
	case CPU:
		names = []string{c.CPU}
		if c.CPU == "" {
			names = []string{os.Getenv("CXX"), "g++", "clang++-19", "clang++"}
		}
	default:
		what, hint = "clang++ 19", "the packages clang-19 and lld-19"
		names = []string{c.GPU}
		if c.GPU == "" {
			names = []string{"clang++-19", "clang++"}
		}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err != nil {
			continue
		}
		version, _, _ := strings.Cut(string(out), "\n")
		if kind != CPU && kind != Own && !strings.Contains(version, "clang version 19.") {
			continue // another LLVM has other traps: see docs/kernels.md
		}
		return compiler{path: path, version: version}, nil
	}
	if err := ctx.Err(); err != nil { // a program that was stopped says nothing of itself
		return compiler{}, fmt.Errorf("looking for %s: %w", what, err)
	}
	return compiler{}, fmt.Errorf("%w: building kernels needs %s: install %s", framework.ErrUnavailable, what, hint)
}

// recipe is a new word whenever compile, or what it does with its result, changes in a way that no
// argument of the compiler shows.
const recipe = "2"

// linker is what clang starts for AMD.
const linker = "ld.lld-19"

// compile makes the image of one unit and returns its bytes.
func compile(ctx context.Context, c compiler, s *Spec, u unit, headers string) ([]byte, error) {
	tmp, err := workFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "image")
	var cmd *exec.Cmd
	switch u.target.Kind {
	case PTX, HSA:
		cmd, err = u.alone(ctx, c, s, headers, tmp)
	case Own:
		cmd, err = u.command(ctx, c, s, headers, append([]string{"-o", out}, u.target.own.Libraries...)...)
	default:
		cmd, err = u.command(ctx, c, s, headers, "-o", out, "-lc")
	}
	if err != nil {
		return nil, err
	}
	var messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &messages, &messages
	if err := steadily(cmd); err != nil {
		return nil, u.failed(ctx, c, err, messages.Bytes())
	}
	data, err := os.ReadFile(out)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("kernel image %s: %s wrote nothing\n%s", u.id(), filepath.Base(c.path), messages.Bytes())
	}
	if u.target.Kind == PTX {
		data = uncommented(data)
	}
	return data, err
}

// failed is the error of a compiler that failed or was stopped.
func (u unit) failed(ctx context.Context, c compiler, err error, messages []byte) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("kernel image %s: %s: %w\n%s", u.id(), filepath.Base(c.path), err, messages)
}

// workFolder makes a folder whose name has as many letters each time.
func workFolder() (string, error) {
	name := filepath.Join(os.TempDir(), "mscclpp-kernels-"+rand.Text())
	return name, os.Mkdir(name, 0o700)
}

// alone runs the compiler in an empty folder on what the preprocessor made of the sources: nothing that it allocates has a size that
// depends on where they are.
func (u unit) alone(ctx context.Context, c compiler, s *Spec, headers, tmp string) (*exec.Cmd, error) {
	pre, err := u.command(ctx, c, s, headers, "-E")
	if err != nil {
		return nil, err
	}
	var text, messages bytes.Buffer
	pre.Stdout, pre.Stderr = &text, &messages
	if err := pre.Run(); err != nil {
		return nil, u.failed(ctx, c, err, messages.Bytes())
	}
	input := text.Bytes()
	for i, dir := range append([]string{headers}, s.folders()...) {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		input = bytes.ReplaceAll(input, []byte(`"`+dir+"/"), []byte(`"`+strings.Repeat("./", i)))
	}
	args := u.flags()
	if u.target.Kind == PTX {
		args = append(args, "-Wno-unknown-cuda-version")
	}
	cmd := exec.CommandContext(ctx, c.path, append(args, "-x", u.target.language(), "-", "-o", "image")...)
	cmd.Dir, cmd.Env = tmp, append(os.Environ(), "TMPDIR=.")
	cmd.Stdin = bytes.NewReader(input)
	return cmd, nil
}

// steadily runs a compiler whose memory is at the same addresses each time. The back end of clang 19 for AMD orders by address in
// places: it chose other registers or copies in one run of some.
func steadily(cmd *exec.Cmd) error {
	const noRandomAddresses = 0x0040000
	runtime.LockOSThread() // the child has the personality of the thread
	was, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
	if errno == 0 { // where a container forbids it, the compiler runs as it did
		_, _, errno = unix.RawSyscall(unix.SYS_PERSONALITY, was|noRandomAddresses, 0, 0)
	}
	err := cmd.Start()
	if errno == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_PERSONALITY, was, 0, 0)
	}
	runtime.UnlockOSThread()
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// command runs the compiler on the sources of a unit.
func (u unit) command(ctx context.Context, c compiler, s *Spec, headers string, more ...string) (*exec.Cmd, error) {
	args := append(u.flags(), u.defines()...)
	if u.target.Kind == PTX {
		// A toolkit on the path is not used, so its version matters to nobody.
		args = append(args, "-Wno-unknown-cuda-version")
	}
	for _, dir := range append([]string{headers}, s.folders()...) {
		args = append(args, "-I"+dir)
	}
	args = append(append(args, "-x", u.target.language(), "-"), more...)
	cmd := exec.CommandContext(ctx, c.path, args...)
	var err error
	if cmd.Dir, err = filepath.Abs(s.dir); err != nil {
		return nil, err
	}
	cmd.Args = absolute(cmd.Args)
	cmd.Stdin = strings.NewReader(u.wrapper())
	return cmd, nil
}

// expanded is a hash of what the compiler reads behind its preprocessor: the same for sources that differ in comments, in
// spaces, or in what concerns other targets alone. "": it is not known.
func (u unit) expanded(ctx context.Context, c compiler, s *Spec, headers string) string {
	if u.target.Kind == Own { // a compiler of others may have no such step
		return ""
	}
	cmd, err := u.command(ctx, c, s, headers, "-E", "-P")
	if err != nil {
		return ""
	}
	text, err := cmd.Output()
	if err != nil {
		return "" // the compiler proper has the words for it
	}
	if bytes.Contains(text, []byte(`R"`)) { // spaces of a raw string matter
		return ""
	}
	return "behind the preprocessor: " + hash(spaced(text))
}

// spaced makes all space one, but in strings and around lines that are for the compiler's own eyes, as "#pragma unroll".
func spaced(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		directive := bytes.HasPrefix(line, []byte("#"))
		if directive {
			b.WriteByte('\n')
		}
		var quote, before byte
		for i, c := range line {
			switch {
			case quote != 0 && before == '\\':
				before = 0 // it is escaped
				b.WriteByte(c)
				continue
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case c == '"' || c == '\'' && (i == 0 || !isDigit(before)):
				quote = c
			case c == ' ' || c == '\t':
				if before == ' ' {
					continue
				}
				c = ' '
			}
			b.WriteByte(c)
			before = c
		}
		switch {
		case directive:
			b.WriteByte('\n')
		case len(line) > 0:
			b.WriteByte(' ')
		}
	}
	return b.Bytes()
}

// isDigit tells the separator of a number, as in 1'000, from a quote.
func isDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

var (
	comment    = onfirstuse.Regexp(`(?m)[ \t]*//.*$`)
	emptyLines = onfirstuse.Regexp(`\n{2,}`)
)

// uncommented takes the compiler's comments and empty lines out of PTX. They are a quarter
// of what version control and programs carry, and drivers read.
func uncommented(ptx []byte) []byte {
	ptx = comment().ReplaceAll(ptx, nil)
	return emptyLines().ReplaceAll(bytes.TrimLeft(ptx, "\n"), []byte("\n"))
}

// absolute makes include folders independent of the compiler's working directory.
func absolute(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if dir, ok := strings.CutPrefix(a, "-I"); ok {
			if abs, err := filepath.Abs(dir); err == nil {
				a = "-I" + abs
			}
		}
		out[i] = a
	}
	return out
}

// wrapper is the one file that is compiled: the sources in order, and the ABI word.
func (u unit) wrapper() string {
	var b strings.Builder
	b.WriteString("#include <mscclpp/device.h>\nMSCCLPP_IMAGE()\n")
	for _, src := range u.family.Sources {
		fmt.Fprintf(&b, "#include %q\n", src)
	}
	return b.String()
}

func (u unit) defines() []string {
	var out []string
	if u.typ != "" {
		t, _ := kernel.ParseDataType(u.typ) // validated
		out = append(out, "-DMSCCLPP_TYPE="+strconv.Itoa(int(t)))
	}
	if u.family.MaxThreads != 0 {
		out = append(out, maxThreadsFlag+strconv.Itoa(u.family.MaxThreads))
	}
	for _, name := range sortedKeys(u.family.Defines) {
		out = append(out, "-D"+name+"="+u.family.Defines[name])
	}
	return out
}
