package cache

import "io"

// section is the file name of a decompressed section: its content alone, which its reader checks.
func section(key string) string { return key + ".section" }

// Section implements symbol.Sections.
func (d *Dir) Section(key string, size int) []byte {
	f, err := d.File(section(key))
	if err != nil {
		return nil
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Size() != int64(size) {
		return nil
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil
	}
	return b
}

// KeepSection implements symbol.Sections.
func (d *Dir) KeepSection(key string, b []byte) {
	f, err := d.Put(section(key), func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	if err == nil {
		f.Close()
	}
}
