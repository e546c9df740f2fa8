package kustomize

import (
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
)

// files are the files of an archive by their names. Names are relative and clean.
type files struct {
	content map[string][]byte
	folders map[string]bool // all folders, also the root, which is "."
}

func newFiles(content map[string][]byte) *files {
	f := &files{content: content, folders: map[string]bool{".": true}}
	for name := range content {
		f.addFolders(name)
	}
	return f
}

// addFolders records the folders above a file.
func (f *files) addFolders(name string) {
	for folder := path.Dir(name); !f.folders[folder]; folder = path.Dir(folder) {
		f.folders[folder] = true
	}
}

func (f *files) isFile(name string) bool {
	_, found := f.content[name]
	return found
}

// kustomizationFiles returns the kustomization files of a folder. A correct folder has one at most.
func (f *files) kustomizationFiles(folder string) (found []string) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if name = path.Join(folder, name); f.isFile(name) {
			found = append(found, name)
		}
	}
	return found
}

// manifests returns what a kustomization file for a folder must list: the YAML files of the folder
// and of its subfolders. A subfolder with a kustomization file is listed instead of its files. The
// names are relative to the folder, begin with "./", and have the order in which Flux finds them on
// a disk.
func (f *files) manifests(folder string) (names []string) {
	listed := map[string]bool{}
	for name := range f.content {
		inside, ok := within(folder, name)
		if !ok {
			continue
		}
		base := f.base(folder, inside)
		switch {
		case base != "":
			listed[base] = true
		case path.Ext(name) == ".yaml", path.Ext(name) == ".yml":
			listed[inside] = true
		}
	}
	for name := range listed {
		names = append(names, "./"+name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	return names
}

// base returns the topmost folder below a folder that has a kustomization file and contains the
// given file. Without such a folder it returns "".
func (f *files) base(folder, inside string) string {
	steps := strings.Split(inside, "/")
	for i := 1; i < len(steps); i++ {
		below := path.Join(steps[:i]...)
		if len(f.kustomizationFiles(path.Join(folder, below))) > 0 {
			return below
		}
	}
	return ""
}

// within returns the name relative to the folder, and whether it is inside the folder.
func within(folder, name string) (string, bool) {
	if folder == "." {
		return name, true
	}
	return strings.CutPrefix(name, folder+"/")
}
