package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// assembler is a program that was found.
type assembler struct{ path, version, sum string }

var releaseWord = onfirstuse.Regexp(`(?m)^Cuda compilation tools, release .*V([\d.]+)\s*$`)

func findAssembler(ctx context.Context, path string) (*assembler, error) {
	if path == "" {
		path = "ptxas"
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return nil, fmt.Errorf("%w: machine code needs NVIDIA's assembler ptxas: %w", framework.ErrUnavailable, err)
	}
	out, err := exec.CommandContext(ctx, found, "--version").Output()
	m := releaseWord().FindSubmatch(out)
	if err == nil && m == nil {
		err = errors.New("no release in the answer to --version")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w: expected NVIDIA's assembler ptxas", framework.ErrUnavailable, found, err)
	}
	data, err := os.ReadFile(found)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	return &assembler{path: found, version: "ptxas " + string(m[1]), sum: hash(data)}, nil
}

// assembly is a new word whenever what is done with the assembler changes in a way that shows neither in its
// arguments nor in its bytes.
const assembly = "1"

// kept is the form of machine code in the store.
type kept struct {
	Use  map[string]machinecode.Use `json:"use"`
	Code []byte                     `json:"code"`
}

func (p *piece) assemble(ctx context.Context, tool *assembler, store string) error {
	text, err := load(p.folder.dir, *p.image)
	if err != nil {
		return fmt.Errorf("kernel image %s: %w", p.image.ID, err)
	}
	if got := hash(text); got != p.image.SHA256 {
		return fmt.Errorf("%w: kernel image %s: sha256 %s, the manifest says %s: build it anew", framework.ErrInvalid, p.image.ID, got, p.image.SHA256)
	}
	place := ""
	if store != "" {
		place = filepath.Join(store, hash([]byte(strings.Join([]string{assembly, tool.sum, tool.version, p.chip, p.image.SHA256}, "\x00"))))
	}
	var k kept
	if data, ok := fetch(place); ok && json.Unmarshal(data, &k) == nil {
		p.code, p.use = k.Code, k.Use
	} else {
		if p.code, p.use, err = tool.run(ctx, text, p.chip); err != nil {
			return fmt.Errorf("kernel image %s: %w", p.id(), err)
		}
		p.made = true
	}
	object, err := machinecode.Inspect(p.code)
	if err != nil {
		return fmt.Errorf("kernel image %s: %w", p.id(), err)
	}
	if !slices.Equal(object.Kernels, p.image.Symbols) {
		return fmt.Errorf("kernel image %s: %w: its machine code has the kernels %v, its manifest says %v", p.id(), framework.ErrInvalid, object.Kernels, p.image.Symbols)
	}
	if p.made {
		if data, err := json.Marshal(kept{p.use, p.code}); err == nil {
			keep(place, data)
		}
	}
	return nil
}

// run assembles one text.
func (t *assembler) run(ctx context.Context, text []byte, chip string) ([]byte, map[string]machinecode.Use, error) {
	dir, err := os.MkdirTemp("", "mscclpp-ptxas-*")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "image.ptx"), text, 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, t.path, "-v", "-arch="+chip, "image.ptx", "-o", "image.cubin")
	cmd.Dir = dir // the name of the text is part of no result
	messages, err := cmd.CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, fmt.Errorf("%w: ptxas: %w\n%s", framework.ErrInvalid, err, messages)
	}
	use, err := parseUse(messages)
	if err != nil {
		return nil, nil, err
	}
	code, err := os.ReadFile(filepath.Join(dir, "image.cubin"))
	return code, use, err
}

var (
	entryLine = onfirstuse.Regexp(`Compiling entry function '(\w+)'`)
	spillLine = onfirstuse.Regexp(`(\d+) bytes stack frame, (\d+) bytes spill stores`)
	usedLine  = onfirstuse.Regexp(`Used (\d+) registers`)
	deepLine  = onfirstuse.Regexp(`(\d+) bytes cumulative stack size`)
)

// parseUse reads what the assembler says of each kernel: its own frame and spills, which come first, and the stack of
// all that it calls.
func parseUse(messages []byte) (map[string]machinecode.Use, error) {
	use := map[string]machinecode.Use{}
	starts := entryLine().FindAllSubmatchIndex(messages, -1)
	for i, at := range starts {
		end := len(messages)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		name, part := string(messages[at[2]:at[3]]), messages[at[1]:end]
		u := machinecode.Use{Registers: number(usedLine(), part, 1)}
		if u.Registers == 0 {
			return nil, fmt.Errorf("%w: ptxas does not say how many registers %s uses", framework.ErrInvalid, name)
		}
		u.Stack = max(number(spillLine(), part, 1), number(spillLine(), part, 2), number(deepLine(), part, 1))
		use[name] = u
	}
	return use, nil
}

// number is a group of an expression's first match, 0 without one.
func number(r *regexp.Regexp, text []byte, group int) int {
	m := r.FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[group])) // digits
	return n
}
