"""Hints for a misspelt name: the field's other spellings of a parameter, besides plain likeness."""

from __future__ import annotations

from collections.abc import Iterable

from scellis_core.errors import nearest

SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(group.split())
    for group in (
        "lr learningrate steplr eta stepsize baselr initiallr maxlr",
        "weightdecay wd decay l2 lambda regularization",
        "width dim dmodel hidden hiddensize hiddendim modeldim embeddim embedding embeddingdim embeddingsize nembd "
        "channels features units outfeatures outputdim outchannels filters",
        "layers numlayers nlayer nlayers numhiddenlayers depth blocks numblocks",
        "heads numheads nhead nheads numattentionheads attentionheads",
        "kvheads numkvheads numkeyvalueheads",
        "vocabsize vocab numembeddings numtokens tokens",
        "context contextlength contextsize blocksize seqlen sequencelength length maxlen maxlength maxseqlen "
        "maxpositionembeddings nctx nposition numpositions",
        "classes numclasses nclasses numlabels numoutputs",
        "kernel kernelsize window windowsize poolsize",
        "stride strides",
        "padding pad",
        "dilation dilations dilationrate",
        "dropout rate p dropoutrate dropoutprob dropprob drop pdrop keepprob",
        "beta1 betas b1 adambeta1 firstmoment",
        "beta2 betas b2 adambeta2 secondmoment",
        "eps epsilon",
        "momentum mu beta",
        "nesterov usenesterov",
        "rank r lorar",
        "alpha loraalpha scale scaling",
        "targets targetmodules modules match",
        "bias usebias",
        "affine elementwiseaffine",
        "labelsmoothing smoothing labelsmooth",
        "ignoreindex ignore padid padindex paddingidx",
        "classweights weight weights",
        "maxnorm clipnorm norm threshold gradclip clip",
        "warmupsteps warmup numwarmupsteps warmupiters",
        "minlr etamin finallr endlr lrmin",
        "totalsteps tmax maxsteps decaysteps numtrainingsteps",
        "path file filename filepath source",
        "folder dir directory root",
        "activation act actfn hiddenact nonlinearity",
        "axis dim axes dims",
        "mlpratio ffnmultiplier expansion mlpwidth intermediatesize ffndim dff dimfeedforward",
    )
)
"""Groups of spellings, without underscores, that mean much the same in one library or another."""


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return a hint for an unknown parameter.

    Args:
        name: what was written.
        choices: every valid name.

    Returns:
        ``lr`` where one valid name means the same; else as :func:`scellis_core.errors.nearest`.
    """
    known = list(choices)
    wanted = _plain(name)
    same = [c for c in known if _plain(c) == wanted]
    alike = same or [c for c in known if any(wanted in group and _plain(c) in group for group in SYNONYMS)]
    if len(alike) == 1:
        return alike[0]
    return "one of: " + ", ".join(alike[:3]) if alike else nearest(name, known)
