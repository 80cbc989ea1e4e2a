package swift

// kind is what a node is. Beside each are its children, and what text and n say.
type kind int

const (
	none       kind = iota
	global          // what was done to it; it
	identifier      // text
	operator        // text: with its fixity
	module          // text

	// Names of declarations.
	localName   // name; n: which of that name
	privateName // the file's, name or nothing
	relatedName // name; text: of what kind

	// What is declared in something: the first child is that.
	contextsBegin
	extension    // module, type, signature?
	function     // context, name, labels?, type, private name?
	variable     // context, name, labels?, type
	subscript    // context, labels?, type, private name?
	initialiser  // context, labels?, type, private name?; text: as it is called
	special      // context; text: as it is called (deinit and the like)
	closure      // context, type; n; text: closure or implicit closure
	defaultArg   // context; n
	initialValue // context; text: of what kind
	accessor     // the variable or subscript; text: getter and the like
	static       // entity
	anonymous    // context, and what else
	macroUse     // context, names; text: of what kind; n

	// Types.
	nominalsBegin
	class     // context, name
	structure // context, name
	enum      // context, name
	protocol  // context, name
	alias     // context, name
	nominalsEnd
	contextsEnd
	bound         // nominal, arguments in a list
	functionType  // parameters, result, effects in a list; text: its attributes
	tuple         // elements
	metatype      // type; text: its representation
	existMetatype // type; text: its representation
	existential   // protocols; text: what stands before them
	superclassed  // protocols, class
	constrained   // existential, requirements
	dynamicSelf   // type
	param         // n: index; text: depth in letters is made of d
	member        // type, name, protocol?
	builtin       // text
	wrapped       // type; text: what stands before it
	dependent     // signature, type
	opaque        // declaration, arguments in a list; n
	opaqueHere    // n
	opaqueOf      // context
	pack          // types
	packElement   // type; n
	expansion     // pattern, count
	implType      // see impl
	boxType       // types
	integer       // text
	typesEnd

	// What functions' types are put together from.
	partsBegin
	emptyList
	first    // the marker of a list's first element
	variadic // the marker of a variadic element
	effect   // type?; text: which
	signature
	requirement // types; text: of what kind
	retroactive // conformance
	conformance // see popConformance
	accessPath  // of a conformance that hangs on parameters
	partsEnd
	element // of a tuple: name?, type; n: variadic
	list    // of types
	labels  // identifiers and first markers
	impl    // text: convention; n: what it says, see implKinds; type
	ofType  // type; text: what of it
	ofTypes // types, conformances; text: what of them
	witness // conformance, entity; text
	thunkOf // signature?, types; text
	keyPath // entity, types; text
	attribute
	specialised // types; text: how
	respecified // parameters; see specialise
)

func (k kind) isType() bool {
	return k > nominalsBegin && k < typesEnd && k != nominalsEnd && k != contextsEnd
}
func (k kind) isNominal() bool { return k > nominalsBegin && k < nominalsEnd || k == bound }
func (k kind) isContext() bool { return k > contextsBegin && k < contextsEnd || k == bound }
func (k kind) isPart() bool    { return k > partsBegin && k < partsEnd }
func (k kind) isAttribute() bool {
	return k == attribute || k == specialised || k == respecified
}
