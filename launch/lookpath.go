package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LookPath finds a program as execvp does, in the PATH of the environment that the
// ranks will have rather than in the launcher's own. The error wraps
// os.ErrNotExist or os.ErrPermission.
func LookPath(program, dir string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		path := program
		if dir != "" && !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := executable(path); err != nil {
			return "", fmt.Errorf("program %s: %w", program, err)
		}
		return program, nil
	}
	var denied error
	for i := len(env) - 1; i >= 0; i-- {
		list, ok := strings.CutPrefix(env[i], "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(list) {
			if d == "" {
				d = "."
			}
			path := filepath.Join(d, program)
			if !strings.Contains(path, "/") {
				path = "./" + path
			}
			switch err := executable(path); {
			case err == nil:
				return path, nil
			case errors.Is(err, fs.ErrPermission):
				denied = err
			}
		}
		break
	}
	if denied != nil {
		return "", fmt.Errorf("program %s: %w", program, denied)
	}
	return "", fmt.Errorf("program %s: not found in PATH: %w", program, fs.ErrNotExist)
}

// Command is LookPath for a program with its arguments, of which the first is the name by which it is called. A file of Python that is no
// program itself is run by Python, without buffers for its output, as torchrun does.
func Command(program string, argv []string, dir string, env []string) (path string, args []string, err error) {
	path, err = LookPath(program, dir, env)
	if err == nil || !strings.HasSuffix(program, ".py") {
		return path, argv, err
	}
	script := program
	if dir != "" && !filepath.IsAbs(script) {
		script = filepath.Join(dir, script)
	}
	if info, failed := os.Stat(script); failed != nil || !info.Mode().IsRegular() {
		return "", argv, err
	}
	name := Python(env)
	python, err := LookPath(name, dir, env)
	if err != nil {
		return "", argv, fmt.Errorf("script %s: %w", program, err)
	}
	return python, append([]string{name, "-u", program}, argv[1:]...), nil
}

// Python is the interpreter that runs scripts in an environment: that of PYTHON_EXEC, as torchrun has it, or python3 of its PATH.
func Python(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if name, ok := strings.CutPrefix(env[i], "PYTHON_EXEC="); ok && name != "" {
			return name
		}
	}
	return "python3"
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder: %w", path, fs.ErrPermission)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable: %w", path, fs.ErrPermission)
	}
	return nil
}
