/* A graph in the text form of the IR (FILE.rtx) as a model: symbols and bounds as written, nothing inferred. */
#include "fe_onnx.h"

rtx_status fe_text_read(fe_model *m, rtx_err *err)
{
    TRY(ir_parse((const char *)m->map.data, m->map.bytes, m->dims, &m->graph, err));
    return ir_verify(m->graph, err);
}
