package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"

	"github.com/mscclpp-go/mscclpp/framework"
)

// extensions of configuration files, in the order in which they are looked for.
var extensions = []string{".yaml", ".yml", ".toml"}

// maxFile bounds a configuration file: a user that names a data file by mistake
// gets an error instead of an exhausted machine.
const maxFile = 1 << 20

// readFile reads one file as a raw tree.
func readFile(path string) (map[string]any, lines, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, nil, fmt.Errorf("%s: expected a regular file of at most %v: %w", path, Bytes(maxFile), framework.ErrInvalid)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // as some editors begin a file; YAML allows it, TOML does not
	var parser koanf.Parser
	var locate func([]byte) (lines, error)
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml":
		parser, locate = yaml.Parser(), yamlLines
	case ".toml":
		parser, locate = toml.Parser(), tomlLines
	default:
		return nil, nil, fmt.Errorf("%s: expected a file name that ends in %s: %w", path, strings.Join(extensions, ", "), framework.ErrInvalid)
	}
	k := koanf.New(delimiter)
	err = k.Load(rawbytes.Provider(data), parser)
	if line := tomlErrorLine(data, err); line > 0 {
		return nil, nil, fmt.Errorf("%s:%d: %v: %w", path, line, err, framework.ErrInvalid)
	} else if err != nil {
		return nil, nil, fmt.Errorf("%s: %v: %w", path, err, framework.ErrInvalid)
	}
	// After the parser has refused aliases that contain themselves or multiply: they
	// are followed here.
	where, err := locate(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %v: %w", path, err, framework.ErrInvalid)
	}
	return k.Raw(), where, nil
}

// findFile returns base with the first extension for which a file exists, or "".
// Two files that differ in the extension alone are an error: it would be a matter
// of luck which one is meant.
func findFile(base string) (string, error) {
	found := ""
	for _, ext := range extensions {
		_, err := os.Stat(base + ext)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && found == "":
			continue
		case err != nil:
			return "", err
		case found != "":
			return "", fmt.Errorf("both %s and %s exist, expected one: %w", found, base+ext, framework.ErrInvalid)
		}
		found = base + ext
	}
	return found, nil
}
